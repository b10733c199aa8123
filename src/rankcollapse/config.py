"""The configuration of a run, checked before any job starts. Torch-free: the workflow imports it at every start."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

from pydantic import Field

from rankcollapse.settings import dong, encoders, gap, phase
from rankcollapse.settings.types import File, Size, settings
from rankcollapse.validation import ConfigError, validate


@settings
class Measurements:
    """The settings of every measurement."""

    san_depth: dong.SanDepth
    attention_step: dong.AttentionStep
    skips_depth: dong.SkipsDepth
    encoder_depth: dong.EncoderDepth
    roberta_attention: encoders.RobertaAttention
    gap_activations: gap.GapActivations
    gap_finite_size: gap.GapFiniteSize
    gap_quantisation: gap.GapQuantisation
    tinybert_width: encoders.TinybertWidth
    gpt2_attention: encoders.Gpt2Attention
    roberta_rank: encoders.RobertaRank
    markov_depth: gap.MarkovDepth
    keyquery_depth: gap.KeyqueryDepth
    keyquery_modules: gap.KeyqueryModules
    gaussian_spectrum: gap.GaussianSpectrum
    gradient_norms: gap.GradientNorms
    logit_gradient_norms: gap.LogitGradientNorms
    gap_scaling: gap.GapScaling
    phase_diagram: phase.PhaseDiagram
    training_grid: phase.TrainingGrid


@settings
class Config:
    """Everything a user may set; ``config/README.md`` explains each key."""

    label: str  # what the book calls these sizes
    results: Annotated[str, Field(min_length=1)]  # the folder for everything that is made
    seed: Annotated[int, Field(ge=0)]
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?|mps)$")]
    threads: Size  # of one measurement; fixed, so that results do not depend on --cores
    measurements: Measurements


NOT_AXES = ("runs", "scale_decades", "residual_decades")  # lists that belong to another list, or are a range
RISING = ("tokens", "lengths", "ratios", "wide_tokens")  # axes along which something is expected to grow or shrink


def check_config(raw: Mapping[str, Any]) -> Config:
    """Return the validated configuration; ``ConfigError`` names every offending key, its value and what is allowed."""
    config: Config = validate(Config, raw, "config")
    for name in get_type_hints(Measurements):
        for key, value in plain(getattr(config.measurements, name)).items():
            if isinstance(value, list) and key not in NOT_AXES:
                _check_axis(f"config: measurements.{name}.{key} = {value}", key, value)
    return config


def plain(settings: Any) -> dict[str, Any]:
    """Return a settings dataclass as sorted plain scalars and lists, fit for a rule's params and for JSON."""
    return {name: _plain(getattr(settings, name)) for name in sorted(field.name for field in fields(settings))}


def _check_axis(what: str, key: str, values: list[Any]) -> None:
    """Refuse a list that names an axis and has the same entry twice (as tensors' keys write it), or does not rise."""
    written = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    if len(set(written)) < len(written):
        raise ConfigError(f"{what}: an entry twice; allowed: each once")
    if key in RISING and values != sorted(values):
        raise ConfigError(f"{what}: not rising; allowed: from small to large")


def input_files(settings: Any) -> list[str]:
    """Return the files that a settings dataclass names: the values of its ``File`` fields."""
    hints = get_type_hints(type(settings), include_extras=True)
    return [getattr(settings, name) for name, hint in hints.items() if hint == File]


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
