"""The benchmarks run and say what they measured; how fast anything is on this machine is no claim of a test."""

import os
import subprocess
import sys

import pytest

from .test_packaging import ROOT


def told(script: str, *arguments: str) -> str:
    """What a script printed; it has to succeed."""
    ran = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / script, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "REMIT_OPA": "", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return ran.stdout


def test_the_decisions_of_one_and_of_a_hundred_actions_are_measured() -> None:
    """Both sizes, with the embedded engine as the measure of the other."""
    lines = [
        line.split() for line in told("decisions.py", "--rounds", "2").splitlines() if "embedded │" in line
    ]
    assert [(line[3], line[-2]) for line in lines] == [("1", "1.00"), ("100", "1.00")]


@pytest.mark.slow
def test_claims_are_measured_one_at_a_time_and_in_hundreds() -> None:
    """Everything that is counted was claimed."""
    out = told("claims.py", "--rounds", "1")
    assert [line.split()[1] for line in out.splitlines() if line.startswith("│")] == ["1", "100"]
