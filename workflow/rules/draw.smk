# One rule a figure, named after it: snakemake --cores 8 rebuttal_07 draws that figure and what it needs.
for figure, entry in CATALOGUE.figures.items():

    rule:
        name:
            figure
        input:
            notebook=f"notebooks/{figure}.py",
            tensors=[PLACES.tensors(name) for name in entry.measurements],
            published=flow.published_files(entry),
            code=flow.notebook_code(figure),
        output:
            report(
                PLACES.picture(figure, "svg"),
                caption="../report/figure.rst",
                category=entry.paper,
                labels={"figure": figure, "title": entry.title},
            ),
            PLACES.picture(figure, "pdf"),
            PLACES.picture(figure, "png"),
            PLACES.table(figure),
            PLACES.agreement(figure),
            [PLACES.verdict(claim) for claim in entry.claims],
            notebook=PLACES.notebook(figure),
        log:
            PLACES.log("draw", figure),
        benchmark:
            PLACES.benchmark("draw", figure)
        conda:
            "../../environment.yml"
        params:
            figure=figure,
            results=lambda wildcards: CONFIG.results,
            claims=flow.criteria(CATALOGUE, figure),
        script:
            "../scripts/draw.py"
