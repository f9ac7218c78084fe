"""Notifications by the notifiers that a source's YAML names. A notifier's errors are logged and don't stop a run."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from binlake.config import PipelineConfig, load
from binlake.config.orchestration import NotifyConfig, Occasion
from binlake.errors import BinlakeError

if TYPE_CHECKING:
    from binlake_airflow.compat import Context

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Notice:
    """An event to notify of; a notifier's templates have it as ``binlake``, such as ``{{ binlake.message }}``."""

    event: Occasion
    source: str
    message: str
    remedy: str = ""


_NOTIFIED = "_binlake_notified"


def notified(error: BaseException | None, event: Occasion) -> None:
    """Mark the error that fails a task as one of which a notice of the event was sent."""
    if error is not None:
        setattr(error, _NOTIFIED, event)


def tell(
    config: PipelineConfig,
    context: Context,
    event: Occasion,
    message: str,
    remedy: str = "",
    *,
    but: Occasion | None = None,
) -> None:
    """Call each notifier that is configured for the event. but: without those that are configured for this one, too,
    and have said the same thing by it."""
    notice = Notice(event, config.source.name, message, remedy)
    for asked in config.airflow.notify:
        if event not in asked.when or but in asked.when:
            continue
        try:
            notifier(asked)({**context, "binlake": asdict(notice)})
        except Exception as error:
            # Only its type: a message may quote an argument, such as an address with a token.
            log.error("%s wasn't notified by %s: %s", event, asked.notifier, type(error).__name__)


def notifier(asked: NotifyConfig) -> Callable[[Mapping[str, Any]], None]:
    """Return an Airflow notifier with its arguments, or a function of the context with these arguments bound."""
    target = pkgutil.resolve_name(asked.notifier)
    if isinstance(target, type):
        instance: Callable[[Mapping[str, Any]], None] = target(**asked.arguments)
        return instance
    return lambda context: target(context, **asked.arguments)


def problems(config: PipelineConfig) -> Iterator[str]:
    """Yield the errors of notifiers that can't be made."""
    for asked in config.airflow.notify:
        try:
            notifier(asked)
        except Exception as error:
            yield f"{asked.notifier}: {type(error).__name__}: {error}"


@dataclass(frozen=True)
class FeedStopped:
    """Airflow's on_failure_callback of a task that carries a feed: notify if the feed is stopped."""

    config_file: str
    feed: str

    def __call__(self, context: Context) -> None:
        """Notify if metadata say that the feed is stopped; log it where they can't be read."""
        from binlake.records import feed_watermarks
        from binlake.store.metadata import metadata_of

        try:
            config = load(self.config_file)
            row = feed_watermarks.read(metadata_of(config), self.feed)
        except BinlakeError as error:
            log.error("nobody is notified that feed %s stopped: %s", self.feed, error)
            return
        if row is not None and row.status == "stopped":
            notified(_error_of(context), "feed_stopped")
            tell(config, context, "feed_stopped", f"feed {self.feed} is stopped: {row.reason}", row.remedy)


@dataclass(frozen=True)
class TaskFailed:
    """Airflow's on_failure_callback of all tasks of a source, called when no retry is left. A notifier that was
    called for the same thing as another event isn't called twice.

    config_file: the source's YAML.
    """

    config_file: str

    def __call__(self, context: Context) -> None:
        """Notify of the failed task, with the first line of its exception."""
        try:
            config = load(self.config_file)
        except BinlakeError as error:
            log.error("nobody is notified of the failure: %s", error)
            return
        task = context["ti"]
        said = str(context.get("exception") or "it ended without a word").strip().partition("\n")[0]
        failed, but = f"{task.dag_id}, task {task.task_id}: {said}", getattr(_error_of(context), _NOTIFIED, None)
        tell(config, context, "failed", failed, "see the task's log", but=but)


def _error_of(context: Context) -> BaseException | None:
    error = context.get("exception")
    return error if isinstance(error, BaseException) else None
