"""Compare the meter with the oracle on many random histories.

Usage: python -m tests.domain.compare_oracle [--histories 200000] [--first 0] [--processes 2]
"""

import argparse
import sys
from multiprocessing import Pool

from tests.domain.histories import difference


def main() -> int:
    """Print each difference and the number of histories; exit code 1 if there is a difference."""
    parser = argparse.ArgumentParser(description="Compare the meter with the oracle on random histories.")
    parser.add_argument("--histories", type=int, default=200_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    differences = 0
    with Pool(options.processes) as pool:
        seeds = range(options.first, options.first + options.histories)
        for found in pool.imap_unordered(difference, seeds, chunksize=100):
            if found is not None:
                differences += 1
                sys.stdout.write(f"{found}\n")
    sys.stdout.write(f"{options.histories} histories, {differences} differences\n")
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main())
