"""A provider for Harbor whose boxes are folders of this machine: `local_box:LocalBox`. For a machine that is itself a box, where no engine can be had.

Each box has /app, /logs, /tests and /solution to itself: what another one had there is put aside for as long as it lives.
"""

import asyncio
import os
import shutil
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

GROUND = [Path("/app"), Path("/logs"), Path("/tests"), Path("/solution")]
ASIDE = Path("/var/local/boxes")


class LocalBox(BaseEnvironment):
    boxes: list["LocalBox"] = []

    @staticmethod
    def type() -> str:
        return "local-box"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        # The machine has no network at all.
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self):
        pass

    async def start(self, force_build: bool) -> None:
        if self.boxes:
            self.boxes[-1]._move(away=True)
        self.boxes.append(self)
        for path in [*GROUND, Path("/logs/agent"), Path("/logs/verifier"), Path("/logs/artifacts")]:
            path.mkdir(parents=True, exist_ok=True)

    async def stop(self, delete: bool) -> None:
        if self not in self.boxes:
            return
        for path in GROUND:
            shutil.rmtree(path, ignore_errors=True)
        self.boxes.remove(self)
        if self.boxes:
            self.boxes[-1]._move(away=False)

    def _move(self, away: bool) -> None:
        for path in GROUND:
            kept = ASIDE / self.session_id / path.name
            source, target = (path, kept) if away else (kept, path)
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(source, target)

    async def upload_file(self, source_path, target_path: str) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source_path, target_path)

    async def upload_dir(self, source_dir, target_dir: str) -> None:
        shutil.copytree(source_dir, target_dir, symlinks=True, dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source_path, target_path)

    async def download_dir(self, source_dir: str, target_dir) -> None:
        shutil.copytree(source_dir, target_dir, symlinks=True, dirs_exist_ok=True)

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None, **_) -> ExecResult:
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            command,
            cwd=cwd or self.task_env_config.workdir or "/",
            env={**os.environ, **(self._merge_env(env) or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), timeout_sec or None)
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode)
