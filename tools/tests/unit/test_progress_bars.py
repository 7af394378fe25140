"""The bars on a terminal."""

import io

from rich.console import Console

from corral.agent.progress import Downloading, Finished, Hashing, Linked, Planned, Retrying, StartedOver
from corral.cli.progress_bars import ProgressBars


def test_bars_follow_the_files_and_sentences_stand_above_them():
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=120, legacy_windows=False)
    with ProgressBars(console) as bars:
        bars(Planned(files=1, bytes_total=1000, bytes_missing=900, bytes_free=2000))
        bars(Downloading("m/[a].gguf", "a" * 64, 500, 1000, moved=400))
        for _connection in range(8):
            bars(Retrying("m/[a].gguf", "the connection was reset", 0.5))
        bars(Downloading("m/[a].gguf", "a" * 64, 1000, 1000, moved=900))
        bars(Hashing("m/[a].gguf", 10, 1000))
        bars(StartedOver("m/[a].gguf", "a", "b"))
        bars(Downloading("m/[a].gguf", "a" * 64, 300, 1000, moved=1200))
        assert bars._progress.tasks[0].completed == 200
        bars(Linked("m", "m@123", changed=True))
        bars(Finished(models=1, files=1, bytes_total=1000, bytes_moved=900, seconds=1))
    text = written.getvalue()
    assert "m/[a].gguf: the connection was reset; again in 0.5 s" in text
    assert text.count("the connection was reset") == 1
    assert "m: now m@123" in text
    assert "1 model" not in text, "the summary is the command's, not the bars'"
