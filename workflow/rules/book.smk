# Binds all figures, tables and verdicts into one Markdown source, and that into two books.
rule book:
    input:
        flow.figure_files(CATALOGUE, PLACES),
        tensors=flow.tensor_files(CATALOGUE, PLACES),
        catalogue=["config/figures.yaml", "config/claims.yaml"],
        published="resources/published/README.md",
        code=flow.book_code(),
    output:
        html=PLACES.book("index.html"),
        pdf=PLACES.book("figure-book.pdf"),
        source=PLACES.book("figure-book.md"),
        agreement=PLACES.agreements(),
    log:
        PLACES.log("book", "book"),
    benchmark:
        PLACES.benchmark("book", "book")
    conda:
        "../../environment.yml"
    params:
        results=lambda wildcards: CONFIG.results,
        label=lambda wildcards: CONFIG.label,
    script:
        "../scripts/book.py"
