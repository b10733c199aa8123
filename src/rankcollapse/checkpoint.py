"""A long training that is killed goes on where it was: one file, written whole or not at all, used only where it fits.

The file is a tensor file with provenance (``store``). What a training goes on to compute depends on settings, seed,
device, threads, library versions and code, and all of that is in the provenance: a file that differs in any is ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rankcollapse import store

INTERVAL = 30.0  # seconds between two writings


def _nothing(line: str) -> None:
    pass


@dataclass(frozen=True)
class Checkpoint:
    """Where the state of one measurement's training is kept, and what it must come from to be taken up again."""

    path: Path
    origin: store.Provenance
    say: Callable[[str], None] = _nothing  # takes one line for the log
    interval: float = INTERVAL

    def load(self) -> dict[str, Tensor]:
        """Return the state that was saved, or nothing; a file that cannot be used is left out with one line.

        One that is truncated or altered is set aside as ``.damaged``; one of another origin is written over later.
        """
        if not self.path.is_file():
            return {}
        try:
            found = store.read(self.path)
        except store.StoreError as error:
            aside = self.path.with_suffix(".damaged")
            self.path.replace(aside)
            self.say(f"{error}; set aside as {aside}, training starts anew")
            return {}
        if found.provenance != self.origin:
            self.say(f"{self.path}: of other {self._differences(found.provenance)}; ignored, training starts anew")
            return {}
        self.say(f"{self.path}: taken up again")
        return {name: torch.from_numpy(array) for name, array in found.tensors.items()}

    def save(self, state: Mapping[str, Tensor]) -> None:
        """Write the state, in place of the one before."""
        store.write(self.path, {name: tensor.detach().cpu().numpy() for name, tensor in state.items()}, self.origin)

    def remove(self) -> None:
        """Delete the file: the measurement is complete."""
        self.path.unlink(missing_ok=True)

    def _differences(self, other: store.Provenance) -> str:
        parts = {name: value for name, value in vars(self.origin).items() if vars(other).get(name) != value}
        return ", ".join({"versions": "versions or code"}.get(name, name) for name in parts)
