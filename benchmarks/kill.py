"""Kill a storing run fifty times at random moments; it must open every time and end as if nothing had happened.

python benchmarks/kill.py [NUMBER] [SEED]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import storing


def main(number: int = 50, seed: int = 0) -> int:
    """Start, kill, look, take up, ...; then end the run and compare."""
    whole, looks = storing.draw(), []

    def check(run: object) -> None:
        storing.equal_beginnings(whole, run)
        looks.append(run.num_draws)

    with tempfile.TemporaryDirectory() as folder:
        killed = rounds = 0
        while killed < number:  # a run that ends before its kill is followed by a new one
            store = Path(folder) / f"run-{rounds}"
            before = killed
            while killed < number and (not looks or looks[-1] < storing.NUM_SAMPLES or killed == before):
                killed += storing.kill_while_storing(store, 1, seed + killed, check)
            done = storing.draw(store)
            storing.equal_beginnings(whole, done)
            assert done.num_draws == storing.NUM_SAMPLES
            looks.append(0)
            rounds += 1
    print(
        f"{killed} kills in {rounds} runs; the store opened after each, with {min(looks):,} to {max(looks):,} draws,"
    )
    print(
        "all equal bit for bit to those of the run that nobody killed, and so were the runs that were resumed."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
