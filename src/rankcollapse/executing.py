"""Runs one notebook from its jupytext source: the body of the workflow's ``draw`` rules."""

import logging
import sys
import tempfile
from pathlib import Path
from typing import TextIO

import jupytext
import papermill
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

KERNEL = "python3"


class ThisInterpreter(AsyncKernelManager):
    """A kernel that is this very interpreter: one found by name may belong to another environment.

    It draws without a screen and runs no start-up files of the user's, which could change numbers.
    """

    @property
    def kernel_spec(self) -> KernelSpec:
        """The command that starts the kernel."""
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        environment = {"MPLBACKEND": "agg", "IPYTHONDIR": str(Path(self.ip).parent)}
        return KernelSpec(argv=command, display_name="Python 3", language="python", env=environment)


class NotebookError(RuntimeError):
    """A notebook that failed; the message names its source, the cell, the error and the notebook as it failed."""


def run(source: Path, output: Path, log: Path, parameters: dict[str, str]) -> None:
    """Execute the notebook ``source`` (py:percent) with the parameters and leave it at ``output``.

    It runs beside the log and moves to ``output`` only when every cell succeeded; a failed notebook is kept there
    with its traceback. Raises ``NotebookError``, one line.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    notebook = jupytext.read(source)
    notebook.metadata["kernelspec"] = {"name": KERNEL, "display_name": "Python 3", "language": "python"}
    attempt = log.with_suffix(".ipynb")
    with tempfile.TemporaryDirectory(prefix="rc-") as folder, log.open("w", encoding="utf-8") as file:
        prepared = Path(folder) / "notebook.ipynb"
        jupytext.write(notebook, prepared)
        _log_to(file)
        try:
            papermill.execute_notebook(
                str(prepared),
                str(attempt),
                parameters=parameters,
                kernel_name=KERNEL,
                progress_bar=False,
                log_output=False,
                cwd=str(Path.cwd()),
                kernel_manager_class=ThisInterpreter,
                shutdown_kernel="immediate",
                config=_sockets_in(Path(folder)),
            )
        except PapermillExecutionError as error:
            file.write(str(error))
            raise NotebookError(
                f"{source}, cell {error.exec_count}: {error.ename}: {error.evalue} (as it failed: {attempt})"
            ) from None
    output.parent.mkdir(parents=True, exist_ok=True)
    attempt.replace(output)


def _sockets_in(folder: Path) -> Config:
    """Return the setting for kernel sockets in a folder: TCP ports are raced for by notebooks that start together."""
    config = Config()
    config.KernelManager.transport = "ipc"
    config.KernelManager.ip = str(folder / "socket")
    return config


def _log_to(file: TextIO) -> None:
    logger = logging.getLogger("papermill")
    logger.handlers = [logging.StreamHandler(file)]
    logger.setLevel(logging.INFO)
    logger.propagate = False
