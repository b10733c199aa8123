"""Run one measurement; the work is in ``rankcollapse.measuring``."""

from pathlib import Path

from rankcollapse import failures, measuring

job = snakemake  # put here by the workflow
log = Path(job.log[0])
with failures.noted(job.wildcards.measurement, Path(job.params.results), log):
    measuring.run(
        job.wildcards.measurement,
        dict(job.params.settings),
        seed=job.params.seed,
        device=job.params.device,
        threads=job.params.threads,
        output=Path(job.output.tensors),
        log=log,
    )
