"""A course of operations drawn at random: after each the lake is proved equal to the server, or what refuses it names
a remedy that is carried out and helps."""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import operations
import remedies
from operated_source import Difference, OperatedSource, Ran
from operations import Operation
from servers import Kind

_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("sync",), ("sync",), ("sync",), ("verify",), ("snapshot",), ("snapshot", "--tables", "shop.*"),
    ("snapshot", "--lock", "none"), ("verify", "--changed"), ("repair",), ("maintain",),
)  # fmt: skip
_MOST_RUNS = 7


@dataclass
class Failure:
    """An operation whose end isn't the server's equal. log: what was done in it."""

    number: int
    name: str
    what: str
    log: list[str]

    def __str__(self) -> str:
        return f"operation {self.number}, {self.name}:\n{self.what}\nwhat was done:\n  " + "\n  ".join(self.log[-70:])


@dataclass
class Course:
    """outcomes: how often operations ended equal at once, and after which remedies. say: is told of each operation."""

    kind: Kind
    release: str
    seed: int
    say: Callable[[str], None] = print
    names: Sequence[str] = ()
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    done: int = 0

    def run(self, count: int, *, seconds: float = float("inf")) -> None:
        """Run operations, each kind once before any comes again; a failure begins with a new server and lake."""
        chance, order = random.Random(self.seed), random.Random(self.seed)
        end = time.monotonic() + seconds
        known = [each for each in operations.of_kind(self.kind) if not self.names or each.name in self.names]
        drawn: list[Operation] = []
        while self.done < count and time.monotonic() < end:
            with OperatedSource(self.kind, self.release, chance) as source:
                failures = len(self.failures)
                while self.done < count and time.monotonic() < end and failures == len(self.failures):
                    drawn = drawn or order.sample(known, len(known))
                    self._operate(source, drawn.pop())

    def _operate(self, source: OperatedSource, chosen: Operation) -> None:
        self.done += 1
        began = time.monotonic()
        source.grant()  # what a former operation took away, and nothing missed
        source.log.clear()
        step = _Step(source, chosen)
        try:
            step.run()
        except Exception as error:
            what = str(error) if isinstance(error, Difference) else traceback.format_exc()
            failure = Failure(self.done, chosen.name, what, [*source.log])
            self.failures.append(failure)
            self.say(f"FAILED, seed {self.seed}, {failure}")
            return
        how = "equal after " + "; ".join(dict.fromkeys(step.carried_out)) if step.carried_out else "equal at once"
        if step.refused:
            how += " | refused: " + "; ".join(dict.fromkeys(step.refused))
        self.outcomes["refused, then equal" if step.carried_out or step.refused else "equal at once"] += 1
        self.say(f"{self.done}. {chosen.name} ({time.monotonic() - began:.1f} s): {how}")
        if self.names:
            self.say("  " + "\n  ".join(source.log))


class _Step:
    """One operation from its beginning to the proof. carried_out: the remedies that were. refused: the errors."""

    def __init__(self, source: OperatedSource, operation: Operation) -> None:
        self.source, self.operation = source, operation
        self.carried_out: list[str] = []
        self.refused: list[str] = []
        self._tried: Counter[str] = Counter()
        self._asked_by_remedies: list[remedies.Remedy] = []
        self._may_differ = False

    def run(self) -> None:
        source, chance = self.source, self.source.random
        source.write()
        if chance.random() < 0.5:
            source.expect("sync")
            source.write(2)
        source.log.append(f"-- {self.operation.name}")
        source.begin_operation(self.operation.begin(source))
        self._may_differ = self.operation.seen_by == "verify" or source.is_unseen
        try:
            if not self.operation.stops_writes:
                source.write(3)
            for command in chance.sample(_COMMANDS, chance.randint(1, 2)):
                self._judge(source.run(*command))
            self._settle(in_effect=True)
        finally:
            source.end_operation()
        source.log.append("-- its end")
        source.write(3)
        self._settle(in_effect=False)
        self._prove()

    def _judge(self, ran: Ran) -> None:
        """Compare, where a command said that all is well. Raises Difference."""
        errors = [line for line in ran.said.split("\n") if line.startswith("binlake: ")]
        self.refused += [line[9:130] for line in errors]
        if errors and "→" not in ran.said.rpartition(errors[-1])[2]:
            raise Difference(f"an error without a remedy: {ran}")
        if ran.arguments[0] == "verify" and ran.code == 0 and "--changed" not in ran.arguments:
            self._may_differ = False
        if not ran.is_well or ran.arguments[0] not in ("sync", "verify") or self._may_differ:
            return
        if ran.arguments[0] == "verify" and "--changed" in ran.arguments:
            return
        self.source.assert_equal(following=False)

    def _settle(self, *, in_effect: bool) -> None:
        """Sync, and do what is asked for, until all is well: in effect, as far as an operation lets it."""
        for _ in range(_MOST_RUNS):
            ran = self.source.run("sync")
            self._judge(ran)
            if ran.is_well and not (asked := self._of_status()):
                return
            if not ran.is_well:
                asked = [*remedies.in_text(ran.said), *self._of_status()]
            if not self._carry_out(asked):
                if in_effect:
                    return
                raise Difference(f"no remedy helped:\n{ran}\nstatus: {self._troubles()}\ntried: {dict(self._tried)}")
        if not in_effect:
            raise Difference(f"not well after {_MOST_RUNS} runs:\n{ran}\ntried: {dict(self._tried)}")

    def _of_status(self) -> list[remedies.Remedy]:
        return remedies.in_text(self._troubles())

    def _troubles(self) -> str:
        status = self.source.status()
        tables = [
            row for row in status["tables"] if row["status"] not in ("following", "dropped") or row.get("problem")
        ]
        lines = [status.get("said", "")]
        for row in [*tables, *status["poison"], *status["beside"]]:
            reason = row.get("problem") or row.get("reason")
            lines.append(f"{row.get('table')} {row.get('status')} {reason}\n  → {row.get('remedy')}")
        return "\n".join(lines)

    def _carry_out(self, asked: Sequence[remedies.Remedy]) -> bool:
        """Carry out the first remedy that wasn't tried twice, and what that one asks for itself; tell whether there was
        one."""
        for remedy in [*self._asked_by_remedies, *asked]:
            if self._tried[remedy.text] < 2:
                self._tried[remedy.text] += 1
                self.carried_out.append(remedy.text)
                self.source.log.append(f"remedy: {remedy.text}")
                ran, others = remedy.act(self.source), self._asked_by_remedies
                self._asked_by_remedies = []
                if isinstance(ran, Ran) and ran.code:
                    self._asked_by_remedies = [*remedies.in_text(ran.said), *others]
                return True
        return False

    def _prove(self) -> None:
        """Verify and repair until verify says equal; then compare by what shares no code with it. Raises Difference."""
        for _ in range(_MOST_RUNS):
            ran = self.source.run("verify")
            if ran.code == 0:
                break
            if not self._carry_out(remedies.in_text(ran.said)):
                raise Difference(f"no remedy of verify helped:\n{ran}\ntried: {dict(self._tried)}")
        else:
            raise Difference(f"verify isn't equal after {_MOST_RUNS} runs:\n{ran}\ntried: {dict(self._tried)}")
        self.source.assert_equal()
        self.source.write(3)
        self._settle(in_effect=False)
        self.source.assert_equal(with_history=True)
