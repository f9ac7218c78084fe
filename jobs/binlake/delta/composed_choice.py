"""The version of each part that a composed table shows: the newest, the one that was, or what its data files are.

A part that doesn't move, can't be read, or has types that don't go together with the others' is shown as it was. So are
the parts of other sources, but for those that wait and can be shown now: see ``composed_sources``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from binlake.delta import opened_tables
from binlake.delta.composed_layout import DeltaField, refused
from binlake.delta.composed_parts import (
    PARTS,
    AnyPart,
    ComposedLog,
    KeptPart,
    LatePart,
    PartBroken,
    ShownPart,
    TablePart,
    folder_of,
    reading,
)
from binlake.delta.composed_sources import NotedShape, PartSources, SourceNote, WaitingPart, noted_fields, shapes_of
from binlake.delta.delta_log import LakeLog, changes_rows, note_of

_AT_ONCE = 16
"""Parts that are opened at once where the storage answers slowly."""
Refusing = Callable[[DeltaTable], str]
"""Returns why a table can't be a part as it is; an empty text where it can."""


@dataclass
class PartsShown:
    """The parts as they are shown, by name.

    kept: parts that are shown by their data files alone. standing: why parts aren't shown as they are. broken: those of
    them that can't be read, and of these ``lost`` those whose logs lack commits that are shown. hidden: those that
    aren't shown at all, as what is shown of them is withheld by now. waiting: at their newest versions, those that are
    shown as they were, as their types don't go together with others'. others: parts of other sources. late: such parts
    that waited, by folder.
    """

    shown: dict[str, ShownPart] = field(default_factory=dict)
    kept: dict[str, KeptPart] = field(default_factory=dict)
    standing: dict[str, str] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    gone: list[ShownPart] = field(default_factory=list)
    waiting: dict[str, ShownPart] = field(default_factory=dict)
    others: list[KeptPart] = field(default_factory=list)
    late: dict[str, LatePart] = field(default_factory=dict)

    @property
    def own(self) -> list[AnyPart]:
        """Return this source's parts in the order of their names."""
        both: dict[str, AnyPart] = {**self.shown, **self.kept}
        return [both[name] for name in sorted(both)]

    @property
    def newest(self) -> list[ShownPart]:
        """Return the parts that are read from their own tables."""
        return [*self.shown.values(), *(late.shown for late in self.late.values())]

    @property
    def all(self) -> list[AnyPart]:
        """Return the parts, those of this source first."""
        others = [part for part in self.others if part.part.folder not in self.late]
        return [*self.own, *(late.shown for late in self.late.values()), *others]

    def notes(self, table: ComposedLog) -> dict[str, SourceNote]:
        """Return what is to be noted in a table of several sources, by source, in the order of their names."""
        if table.sources is None:
            return {}
        notes = {**table.notes_of_others, table.sources.own: self._own_note(table, table.sources)}
        for late in self.late.values():
            before = notes[late.source]
            waiting = tuple(part for part in before.waiting if part != late.waiting)
            shapes = shapes_of([*before.shown, late.shown.fields])
            notes[late.source] = replace(before, shapes=shapes, waiting=waiting)
        return {name: notes[name] for name in sorted(notes)}

    def _own_note(self, table: ComposedLog, sources: PartSources) -> SourceNote:
        shown = [(name, self.shown[name]) for name in sorted(self.shown)]
        shapes = shapes_of(part.fields for name, part in shown if name not in self.waiting)
        if self.kept:  # they have some of the columns that were noted
            without = SourceNote(0, (NotedShape(1, noted_fields(table.fields)),))
            noted = table.notes.get(sources.own, without)
            known = [shape.fields for shape in shapes]
            shapes += shapes_of(fields for fields in noted.columns if fields not in known)
        waiting = tuple(
            WaitingPart(
                name,
                part.part.folder,
                part.part.value,
                part.part.app,
                part.version,
                noted_fields(self.shown[name].fields) if name in self.shown else [],
            )
            for name, part in sorted(self.waiting.items())
        )
        return SourceNote(sources.history_hours, shapes, waiting)

    def keep(self, table: ComposedLog, part: TablePart, why: str) -> None:
        """Let the table name a part's data files as it does."""
        self.standing.setdefault(part.name, why)
        self.broken.add(part.name)
        if table.recorded(part.app) is None and part.hides is not None and part.hides(0):
            self._hide(part)
        elif table.has_files_of(part.folder):
            self.kept[part.name] = KeptPart(part, table)

    def _hide(self, part: TablePart) -> None:
        """Note that what the table shows of a part goes."""
        self.hidden.add(part.name)
        why = self.standing.get(part.name, "it doesn't follow up to the position of this version")
        self.standing[part.name] = f"{why}; what was shown of it is withheld by now, so that it has no row until then"

    def before(self, table: ComposedLog, newest: ShownPart) -> ShownPart | None:
        """Return a part at the version that the table shows; None where it shows none of this table, or that version
        can't be read, or has what is withheld by now."""
        version = table.recorded(newest.app)
        if version == newest.version:
            return newest
        if _is_withheld(newest, version):
            self._hide(newest.part)
            return None
        if version is None:
            return None
        try:
            return replace(newest, table=opened_tables.opened(newest.path, version))
        except DeltaError:
            self.keep(table, newest.part, f"Delta version {version}, which is shown, can't be read")
            return None


def choose(table: ComposedLog, parts: Sequence[TablePart], broken: Mapping[str, str], unfit: Refusing) -> PartsShown:
    """Return the parts as they are to be shown. broken: why parts can't be read, by name. Raises what
    ``reading`` lets through, and the error of the storage where this account may read no part."""
    choice = PartsShown()
    ordered = sorted(parts, key=lambda part: part.folder)
    for part, newest in zip(ordered, _opened(table.path, ordered, broken), strict=True):
        if isinstance(newest, PartBroken):
            if not part.is_gone:
                choice.keep(table, part, newest.reason)
        elif newest is None:
            if not part.is_gone and table.has_files_of(part.folder):
                choice.keep(table, part, "its folder isn't there")
        elif part.is_gone:
            choice.gone.append(newest)
        else:
            try:
                with reading(part.name):
                    _choose(table, newest, choice, unfit)
            except PartBroken as error:
                choice.keep(table, part, error.reason)
    _take_over(table, choice, broken)
    while standing := _refused(table, choice):
        for folder in [folder for folder in choice.late if folder in standing]:
            del choice.late[folder]
        for name in [name for name in choice.shown if name in standing]:
            choice.standing.setdefault(name, standing[name])
            choice.waiting.setdefault(name, choice.shown[name])
            _show_before(table, choice.shown.pop(name), choice)
    return choice


def _take_over(table: ComposedLog, choice: PartsShown, broken: Collection[str]) -> None:
    """Take over the parts of other sources as they are shown, and those that wait as they are to be shown. broken: what
    can't be read; of other sources' parts it has the folders."""
    if table.sources is None:
        return
    choice.others += [part for parts in table.of_others.values() for part in parts]
    for source, note in table.notes_of_others.items():
        for part in note.waiting:
            path, own = f"{table.path}/{part.folder}", TablePart(part.folder, part.folder, part.value, app=part.app)
            if part.folder in broken:
                continue  # its own source shows it once it can be read
            with suppress(PartBroken), reading(part.folder):
                shown = ShownPart(own, path, opened_tables.opened(path, part.version), source)
                _ = shown.fields, shown.app, shown.transaction
                choice.late[part.folder] = LatePart(source, part, shown)


def _refused(table: ComposedLog, choice: PartsShown) -> dict[str, str]:
    """Return the parts that can't be shown as they are chosen, and why: of this source by their names, late ones by
    their folders."""
    fields: dict[str, Sequence[DeltaField]] = {each.part.name: each.fields for each in choice.own}
    fields |= {folder: late.shown.fields for folder, late in choice.late.items()}
    for source, note in table.notes_of_others.items() if table.sources else ():
        shown = [shape.fields for shape in note.shapes]
        shown += [part.fields for part in note.waiting if part.fields and part.folder not in choice.late]
        fields |= {f"{source} {number}": columns for number, columns in enumerate(shown)}
    chosen = {*choice.shown, *choice.late}
    return {name: why for name, why in refused(fields, table.fields).items() if name in chosen}


def _is_withheld(newest: ShownPart, version: int | None) -> bool:
    """Return whether a version of a part has what is withheld by now: it had more then or since, and was copied again.
    version: None for one of which nothing is known. Where commits are gone, one of them may have been the copy. Raises
    LakeError."""
    part = newest.part
    if part.hides is None:
        return False
    log = LakeLog(newest.path, part.app)
    shown = None if version is None else log.info_at(version)
    if not part.hides(int(shown.get("timestamp") or 0) * 1000 if shown else 0):
        return False
    if version is None:
        return True
    later = [*log.history(version)]
    return len(later) < newest.version - version or any("snapshot" in note_of(commit) for commit in later)


def _show_before(table: ComposedLog, now: ShownPart, choice: PartsShown) -> None:
    """Show a part as it was, unless that is as it is."""
    try:
        with reading(now.part.name):
            before = choice.before(table, now)
            if before is not None and before.version != now.version and before.fields:
                choice.shown[now.part.name] = before
    except PartBroken as error:
        choice.keep(table, now.part, error.reason)


_Opened = ShownPart | PartBroken | None
"""A part at its newest version, or why it can't be read; None where it isn't there."""


def _opened(path: str, parts: Sequence[TablePart], broken: Mapping[str, str]) -> list[_Opened]:
    """Return each part. Raises the error of the storage where this account may read none of them."""

    def opened(part: TablePart) -> _Opened:
        place = f"{path}/{part.folder}"
        if part.name in broken:
            return PartBroken(part.name, broken[part.name])
        try:
            with reading(part.name):
                there = opened_tables.is_table(place)
                return ShownPart(part, place, opened_tables.newest(place)) if there else None
        except PartBroken as error:
            return error

    if "://" not in path:
        there = [opened(part) for part in parts]
    else:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="compose") as pool:
            there = [*pool.map(opened, parts)]
    looked = [each for part, each in zip(parts, there, strict=True) if each is not None and part.name not in broken]
    refused = [error for error in looked if isinstance(error, PartBroken) and error.is_refused]
    if refused and len(refused) == len(looked) and refused[0].__cause__ is not None:
        raise refused[0].__cause__
    return there


def _choose(table: ComposedLog, newest: ShownPart, choice: PartsShown, unfit: Refusing) -> None:
    part = newest.part
    if why := _lost(table, newest):
        choice.lost.add(part.name)
        choice.keep(table, part, why)
        return
    if part.follows and (why := unfit(newest.table)):
        choice.standing[part.name] = why
    each = newest if part.follows and part.name not in choice.standing else choice.before(table, newest)
    if each is not None:
        _ = each.fields, each.app  # read here, where it costs this part alone if they can't be
        choice.shown[part.name] = each


def _lost(table: ComposedLog, newest: ShownPart) -> str:
    """Return why a part's log lacks commits that the table shows; empty where it has all.

    Where the loss was noticed and put right, what is recorded elsewhere is the version that the part was set to, or the
    life committed rows in the place of those that are lost.
    """
    version, part = table.recorded(newest.app), newest.part
    transaction = table.recorded(part.app)
    if version is None or transaction is None:
        return ""
    if newest.version < version:
        if part.delta_version is not None and part.delta_version <= newest.version:
            return ""
        return f"it is at Delta version {newest.version}, {version} was shown: commits are lost"
    if newest.transaction is not None and newest.transaction >= transaction:
        return ""
    for commit in LakeLog(newest.path, part.app).history(version - 1):
        if changes_rows(commit) and part.app.endswith(f":{note_of(commit).get('life')}"):
            return ""
    return "commits that were shown are lost, and others have their numbers"


def gone_apps(table: ComposedLog, choice: PartsShown, folders: Collection[str]) -> list[str]:
    """Return the application ids of what is no part any more: what is shown of it must not come back with its name."""
    gone = {each.part.folder: each.path for each in choice.gone}
    gone |= {folder: f"{table.path}/{folder}" for folder in map(folder_of, table.paths) if folder not in folders}
    apps = []
    for path in gone.values():
        try:
            with reading(path):
                if opened_tables.is_table(path):
                    apps.append(f"{PARTS}{opened_tables.newest(path).metadata().id}")
        except PartBroken:
            continue  # a table of the name that can be read is shown whole where no file of it is
    return apps
