"""Bind the two books; the work is in ``rankcollapse.book``."""

from pathlib import Path

from rankcollapse import book, failures

job = snakemake  # put here by the workflow
log = Path(job.log[0])
with failures.noted("book", Path(job.params.results), log):
    book.bind(Path(job.params.results), label=job.params.label, log=log)
