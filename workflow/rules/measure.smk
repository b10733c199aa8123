# One job a measurement: it computes a whole grid and files the tensors with their provenance.
rule measure:
    input:
        code=lambda wildcards: flow.measurement_code(wildcards.measurement),
        data=lambda wildcards: flow.measurement_data(CONFIG, wildcards.measurement),
    output:
        tensors=PLACES.tensors("{measurement}"),
    log:
        PLACES.log("measure", "{measurement}"),
    benchmark:
        PLACES.benchmark("measure", "{measurement}")
    params:
        results=CONFIG.results,
        seed=CONFIG.seed,
        device=CONFIG.device,
        threads=CONFIG.threads,
        settings=lambda wildcards: flow.measurement_settings(CONFIG, wildcards.measurement),
    wildcard_constraints:
        measurement="|".join(flow.MEASUREMENTS),
    threads: CONFIG.threads
    conda:
        "../../environment.yml"
    script:
        "../scripts/measure.py"
