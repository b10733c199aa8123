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
    wildcard_constraints:
        measurement="|".join(flow.MEASUREMENTS),
    priority: lambda wildcards: flow.priority(wildcards.measurement)
    conda:
        "../../environment.yml"
    threads: CONFIG.threads
    params:
        results=lambda wildcards: CONFIG.results,
        seed=CONFIG.seed,
        device=CONFIG.device,
        threads=CONFIG.threads,
        settings=lambda wildcards: flow.measurement_settings(
            CONFIG, wildcards.measurement
        ),
    script:
        "../scripts/measure.py"
