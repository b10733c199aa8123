"""The configuration of a run, checked before any job starts. Torch-free: the workflow imports it at every start."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import Field

from rankcollapse.settings import dong, encoders, gap, noci, phase, remedies, smoothing
from rankcollapse.settings.types import PYDOC, Checkpoints, File, Prose, Size, settings
from rankcollapse.validation import ConfigError, validate


@settings
class Measurements:
    """The settings of every measurement."""

    san_depth: dong.SanDepth
    sorting_task: dong.SortingTask
    hull_task: dong.HullTask
    memorization_task: dong.MemorizationTask
    circle_task: dong.CircleTask
    attention_step: dong.AttentionStep
    skips_depth: dong.SkipsDepth
    path_lengths: dong.PathLengths
    residual_bounds: dong.ResidualBounds
    encoder_depth: dong.EncoderDepth
    trained_encoders: dong.TrainedEncoders
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
    noci_similarity: noci.NociSimilarity
    noci_gradients: noci.NociGradients
    remedies_depth: remedies.RemediesDepth
    graph_smoothing: smoothing.GraphSmoothing
    vision_patches: smoothing.VisionPatches
    phase_diagram: phase.PhaseDiagram
    training_grid: phase.TrainingGrid


@settings
class Config:
    """Everything a user may set; ``config/README.md`` explains each key."""

    label: str  # what the book calls these sizes
    results: Annotated[str, Field(min_length=1, pattern=r"^[^{}]*$")]  # the folder for everything that is made
    seed: Annotated[int, Field(ge=0)]
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?|mps)$")]
    threads: Size  # of one measurement; fixed, so that results do not depend on --cores
    models: Checkpoints  # trained encoders to measure besides the embedded one; config/models.yaml is something else
    measurements: Measurements


NOT_AXES = ("momenta", "runs", "scale_decades", "residual_decades")  # lists that belong to another list, or are a range
RISING = ("tokens", "lengths", "ratios", "wide_tokens")  # axes along which something is expected to grow or shrink


def check_config(raw: Mapping[str, Any]) -> Config:
    """Return the validated configuration; ``ConfigError`` names every offending key, its value and what is allowed."""
    config = _hand_on_models(validate(Config, raw, "config"))
    for name in get_type_hints(Measurements):
        for key, value in plain(getattr(config.measurements, name)).items():
            if isinstance(value, list) and key not in NOT_AXES:
                _check_axis(f"config: measurements.{name}.{key} = {value}", key, value)
    return config


def _hand_on_models(config: Any) -> Config:
    """Give the checkpoints asked for to the measurement that reads them, which alone depends on them."""
    measurements: Any = config.measurements
    own: Any = measurements.trained_encoders
    if own.models:
        raise ConfigError("config: measurements.trained_encoders.models: unknown key; allowed: models, at the top")
    return replace(config, measurements=replace(measurements, trained_encoders=replace(own, models=config.models)))


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
    """Return the files that a settings dataclass names, texts of the user's own and weights in folders among them."""
    found: list[str] = []
    for name, hint in get_type_hints(type(settings), include_extras=True).items():
        value = getattr(settings, name)
        if hint == File or (hint == Prose and value != PYDOC):
            found.append(value)
        elif hint == Checkpoints:
            found += [str(path) for folder in value for path in sorted(Path(folder).glob("*.safetensors"))]
    return found


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
