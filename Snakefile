# Entry point: snakemake --cores 8 makes everything, snakemake --cores 8 rebuttal_07 one figure, --configfile
# config/smoke.yaml the same at tiny sizes.
from snakemake.utils import min_version

min_version("9.0")


configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/draw.smk"
include: "workflow/rules/book.smk"


rule all:
    default_target: True
    input:
        PLACES.book("index.html"),
        PLACES.book("figure-book.pdf"),
        flow.figure_files(CATALOGUE, PLACES),
        flow.tensor_files(CATALOGUE, PLACES),


flow.check_targets(workflow)
