"""Execute one notebook; the work is in ``rankcollapse.executing``."""

from pathlib import Path

from rankcollapse import executing, failures

job = snakemake  # put here by the workflow
log = Path(job.log[0])
with failures.noted(job.params.figure, Path(job.params.results), log):
    executing.run(
        Path(job.input.notebook),
        Path(job.output.notebook),
        log,
        {"figure": job.params.figure, "results": job.params.results},
    )
