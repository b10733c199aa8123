"""One thread for the numerical libraries: tests run side by side, and threads of both would fight over the cores."""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
