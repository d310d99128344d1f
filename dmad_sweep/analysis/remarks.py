"""What a reader must know beside the numbers, as short sentences and as notes below a table."""

import math
from collections.abc import Sequence

from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.text import amount
from dmad_sweep.records.row import Row
from dmad_sweep.units import bytes_to_gib

OF_A_TABLE = {
    "cpu_memory": "peak is the process's memory above its start: a CPU has no allocator to ask",
    "emulated": "on an emulated card: the allocator was limited, algorithms still saw the real device",
}
"""Codes of the device, which all rows of a table share, measured or not."""

OF_A_ROW = {
    "device_in_use": "others used {used_before} of the device before the trial: device peak and headroom "
    "count that in, and times are not the trial's alone",
    "stranger": "another process used the device during the trial: peaks of the device and times are not "
    "the trial's alone",
    "left_behind": "processes that the trial had started still ran after its end, and were killed",
    "unreleased": "not all of the trial's memory was free again after its end",
    "probable_oom": "probably out of memory: the library's error does not say so for certain",
    "peak_before_the_end": "the peak is that of the stages before: more may have been in use at the end",
    "allocation_retries": "the allocator had to free its cache and retry: times are not comparable",
    "no_optimizer_state": "some optimizer never stepped (loss scaling skipped it): its states are missing",
    "reused": "taken over from sweep {reused_from}, which measured it under the same conditions",
    "launch_bound": "launch-bound: the device waits for the host, and a larger batch costs little time",
    "cudnn_before_fault": "cuDNN's attention ran before this fault: try attention=flash or efficient",
    "snapshot": "the allocator's history was recorded, which takes time: times are not comparable",
    "not_checkpointed": "checkpointing was asked for and nothing was recomputed",
    "batch_differs": "the tensors had another micro-batch than was asked for",
    "resolution_differs": "the tensors had another size than was asked for",
}


def remarks(row: Row) -> list[str]:
    """Sentences on a row, most specific last. A code that is not known here stands for itself."""
    said = [_sentence(code, row) for code in row.remarks]
    if row.oom_requested_bytes is not None:
        said.append(tr("asked for {size} more when memory ran out", size=amount(row.oom_requested_bytes)))
    if row.explanation:
        said.append(row.explanation)
    return [_on_one_line(sentence) for sentence in said]


class Notes:
    """Remarks of a table as lettered notes; one that holds for the whole table needs no letter."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._said = {row.trial_id: remarks(row) for row in rows}
        distinct = list(dict.fromkeys(sentence for said in self._said.values() for sentence in said))
        of_all = {s for s in distinct if all(s in said for said in self._said.values())}
        of_table = {tr(sentence) for sentence in OF_A_TABLE.values()}
        self._general = [s for s in distinct if s in of_all or s in of_table]
        special = [s for s in distinct if s not in self._general]
        self._letters = {sentence: _letter(index) for index, sentence in enumerate(special)}

    def marks(self, row: Row) -> str:
        """Letters of the notes on a row."""
        return " ".join(self._letters[s] for s in self._said[row.trial_id] if s in self._letters)

    def lines(self) -> list[str]:
        return [*self._general, *(f"{letter}: {sentence}" for sentence, letter in self._letters.items())]


def _sentence(code: str, row: Row) -> str:
    text = OF_A_TABLE.get(code) or OF_A_ROW.get(code)
    if text is None:
        return code
    before = row.used_before_bytes
    # rounded up to a tenth, so that a desktop's few MiB more or less make no note of their own
    size = f"{math.ceil(10 * bytes_to_gib(before or 0)) / 10:.1f}"
    used = tr("up to {size} GiB", size=size) if before else tr("some")
    return tr(text, used_before=used, reused_from=row.reused_from)


def _on_one_line(text: str) -> str:
    """Messages come from other programs: nothing in them may move a terminal's cursor."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _letter(index: int) -> str:
    """a, b, …, z, aa, ab, …"""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters
