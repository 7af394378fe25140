"""Play an incident on this machine, and print when each layer detected the fault.

{names}

llama-swap, the engine, the preflight, the exporter and `corral why` are real, and so are Prometheus and Alertmanager
where they are installed.  The card is a stand-in: a program called nvidia-smi.  A local stack that runs is left alone.

Exit code 1 when a layer did not detect the fault, or an alert came late: the one with the culprit has 60 s from the
first failed load.

examples:
  corral drill
  corral drill engine-hangs
  corral drill --json | jq '.layers[] | [.layer, .after_seconds] | @tsv' -r
"""

from __future__ import annotations

import argparse
import shutil
import signal

from corral import output, paths
from corral.cli import options
from corral.drill.drills import DRILLS
from corral.errors import ExitCode
from corral.files import OwnFolder

_BUSY_LIMIT_S = 1.0
_NAMES = "\n".join(f"  {name:<16} {summary}" for name, summary in DRILLS.items())
__doc__ = __doc__.format(names=_NAMES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("drill", nargs="?", choices=tuple(DRILLS), default="tenant-grows", help="default: tenant-grows")
    options.add(parser, "--json")
    port = "of the drill's own front door (default: a free one)"
    parser.add_argument("--port", type=options.whole_number(1, 65535), metavar="N", help=port)


def run(args: argparse.Namespace) -> int:
    from corral.drill import drills, scene

    own = OwnFolder(paths.state_dir(), "CORRAL_STATE")
    folder = own.path / "drill"
    with own.exclusive_lock(folder, timeout_s=_BUSY_LIMIT_S):
        place = folder / "scene"
        scene.end_former(place)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # its programs end with it
        try:
            found = drills.play(args.drill, place, output.info, port=args.port)
        finally:
            signal.signal(signal.SIGTERM, before)
        shutil.rmtree(place, ignore_errors=True)
    passed = all(one.after_s is not None for one in found if one.is_required)
    if args.json:
        output.data_json({"drill": args.drill, "passed": passed, "layers": [one.as_json() for one in found]})
    else:
        rows = [(one.layer, "-" if one.after_s is None else f"{one.after_s:.1f} s", one.text) for one in found]
        output.table(("layer", "detected after", "what"), rows)
    return ExitCode.OK if passed else ExitCode.FAILED
