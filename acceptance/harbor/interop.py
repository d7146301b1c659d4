"""Harbor's own code on what we write: `interop.py JOB TASKS OUT`. A line for each check; OUT gets trials that Harbor itself has run."""

import json
import os
import subprocess
import sys
from pathlib import Path

from harbor.models.job.config import JobConfig
from harbor.models.job.lock import JobLock, TrialLock
from harbor.models.job.result import JobResult
from harbor.models.trial.artifact_manifest import ArtifactManifestEntry
from harbor.models.trial.config import TrialConfig
from harbor.models.trial.result import TrialResult
from harbor.publisher.packager import Packager

JOB, TASKS, OUT = (Path(argument) for argument in sys.argv[1:4])
BOX = "local_box:LocalBox"
EXPECTED = json.loads((JOB / "expected.json").read_text())


def check(what, found, expected):
    if found != expected:
        sys.exit(f"FAILED {what}: expected {expected!r}, found {found!r}")
    print(f"ok {what}", flush=True)


def harbor(*arguments):
    """Its exit code and what it said; without the line breaks of its console."""
    env = {**os.environ, "COLUMNS": "1000", "HARBOR_TELEMETRY": "0", "HARBOR_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
    command = [sys.executable, "-c", "from harbor.cli.main import app; app()", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, env=env)
    return ran.returncode, ran.stdout + ran.stderr


# 1. Its models read every file of ours.
trials = sorted(path.parent for path in JOB.glob("*/result.json"))
check("trials of the job", len(trials), len(EXPECTED))
for trial in trials:
    result = TrialResult.model_validate_json((trial / "result.json").read_text())
    expected = EXPECTED[result.trial_name]
    check(f"{expected['kind']}: result.json", (result.task_name, result.trial_name), (expected["task"], trial.name))
    check(f"{expected['kind']}: rewards", result.verifier_result and result.verifier_result.rewards, expected["rewards"])
    check(f"{expected['kind']}: exception", result.exception_info and result.exception_info.exception_type, expected["exception"])
    steps = result.step_results
    check(f"{expected['kind']}: steps", steps and [step.step_name for step in steps], expected["steps"])
    check(f"{expected['kind']}: config.json", TrialConfig.model_validate_json((trial / "config.json").read_text()).trial_name, trial.name)
    lock = TrialLock.model_validate_json((trial / "lock.json").read_text())
    digest, _ = Packager.compute_content_hash(TASKS / expected["folder"])
    check(f"{expected['kind']}: lock.json, its digest of the task", lock.task.digest, f"sha256:{digest}")
    manifests = sorted(trial.glob("**/artifacts/manifest.json"))
    check(f"{expected['kind']}: manifests", len(manifests), expected["manifests"])
    for manifest in manifests:
        for entry in json.loads(manifest.read_text()):
            ArtifactManifestEntry.model_validate(entry)

check("job: config.json", JobConfig.model_validate_json((JOB / "config.json").read_text()).job_name, JOB.name)
job = JobResult.model_validate_json((JOB / "result.json").read_text())
check("job: result.json", (job.n_total_trials, job.stats.n_completed_trials), (len(trials), len(trials)))
check("job: lock.json", len(JobLock.model_validate_json((JOB / "lock.json").read_text()).trials), len(trials))

# 2. Its regrade takes our trials, single-step and multi-step, and refuses one that was left without artifacts.
for trial in trials:
    expected = EXPECTED[trial.name]
    if expected["regraded"] is None:
        continue
    code, said = harbor("trial", "regrade", trial, "-p", TASKS / "new" / expected["folder"], "-e", BOX, "-o", OUT / "regraded", "--trial-name", trial.name)
    if code != 0:
        sys.exit(f"FAILED {expected['kind']}: harbor trial regrade: {code}\n{said}")
    again = TrialResult.model_validate_json((OUT / "regraded" / trial.name / "result.json").read_text())
    check(f"{expected['kind']}: harbor trial regrade", again.verifier_result.rewards, expected["regraded"])

# 3. It runs trials itself, for our regrade.
for folder, rewards in (("answer", {"reward": 0.0}), ("steps", {"reward": 0.5})):
    code, said = harbor("trial", "start", "-p", TASKS / folder, "-a", "oracle", "-e", BOX, "--trials-dir", OUT / "written", "--trial-name", f"harbor-{folder}")
    if code != 0:
        sys.exit(f"FAILED {folder}: harbor trial start: {code}\n{said}")
    written = TrialResult.model_validate_json((OUT / "written" / f"harbor-{folder}" / "result.json").read_text())
    check(f"{folder}: harbor trial start", written.verifier_result and written.verifier_result.rewards, rewards)
