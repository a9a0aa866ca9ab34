"""The estimates of the package lifelines, for the samples of the tests.

`python lifelines_results.py` prints them as JSON. It needs lifelines, which brings pandas, SciPy
and Matplotlib: 330 MB, and 16 s to install. So the gate compares with the recorded ones in
`lifelines.json`, and a nightly test compares those with lifelines.
"""

from __future__ import annotations

import json
import math
import random
import sys
from typing import Any

#: Samples by seed, how many, the limit that clips them in seconds; a tenth are interrupted.
SAMPLES = [(1, 20, 600), (2, 60, 300), (3, 200, 447), (4, 1000, 200), (5, 500, 1_000_000)]
MEDIAN_S, SIGMA, CONFIDENCE = 120, 0.8, 0.95


def durations(seed: int, how_many: int, limit: float) -> list[tuple[float, bool]]:
    """Return durations in seconds, each with whether it was censored."""
    draw = random.Random(seed)  # noqa: S311 - samples that can be repeated
    pairs = []
    for _ in range(how_many):
        seconds = math.exp(draw.gauss(math.log(MEDIAN_S), SIGMA))
        end = limit if draw.random() > 0.1 else draw.uniform(20, 200)
        pairs.append((round(min(seconds, end), 3), seconds > end))
    return pairs


def estimates(pairs: list[tuple[float, bool]]) -> dict[str, Any]:
    """Return what lifelines finds, with two-sided intervals of 90 %: upper bounds of 95 %."""
    from lifelines import (  # type: ignore[import-not-found] # noqa: PLC0415 - not in the gate
        KaplanMeierFitter,
        LogNormalFitter,
    )

    seconds, complete = [one for one, _ in pairs], [not censored for _, censored in pairs]
    curve = KaplanMeierFitter(alpha=2 * (1 - CONFIDENCE)).fit(seconds, complete)
    fitted = LogNormalFitter().fit(seconds, complete)
    survival, upper = curve.survival_function_.iloc[:, 0], curve.confidence_interval_.iloc[:, 1]
    times = sorted(one for one, censored in pairs if not censored)[:: len(pairs) // 5]
    return {
        "survival": [[one, float(survival.asof(one)), float(upper.asof(one))] for one in times],
        "p50": _first(survival, 0.5),
        "p50_bound": _first(upper, 0.5),
        "p75": _first(survival, 0.25),
        "p75_bound": _first(upper, 0.25),
        "mu": float(fitted.mu_),
        "sigma": float(fitted.sigma_),
        "log_normal_p95": float(fitted.percentile(0.05)),
        "covariance": fitted.variance_matrix_.to_numpy().tolist(),
    }


def _first(curve: Any, longer: float) -> float | None:
    reached = curve[curve <= longer]
    return float(reached.index[0]) if len(reached) else None


def main() -> None:
    """Print the estimates of all samples."""
    import lifelines  # noqa: PLC0415 - as above

    found = [
        {
            "seed": seed,
            "how_many": count,
            "limit": limit,
            **estimates(durations(seed, count, limit)),
        }
        for seed, count, limit in SAMPLES
    ]
    lines = ",\n".join(json.dumps(one) for one in found)
    sys.stdout.write(f'{{"lifelines": "{lifelines.__version__}", "estimates": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
