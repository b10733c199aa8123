import pytest

from rankcollapse.architectures import check_architecture, positions, read_architecture
from rankcollapse.validation import ConfigError

MODELS = "config/models.yaml"


@pytest.mark.parametrize(
    ("name", "most"),
    # The longest inputs the public checkpoints take; XLNet's positions are relative.
    [
        ("roberta-base", 512),
        ("bert-base-cased", 512),
        ("albert-base-v2", 512),
        ("xlnet-base-cased", None),
        ("gpt2", 1024),
    ],
)
def test_positions(name, most):
    assert positions(read_architecture(MODELS, name)) == most


def test_what_an_architecture_can_take_is_checked():
    check_architecture(MODELS, "roberta-base", tokens=512, heads=12)
    check_architecture(MODELS, "xlnet-base-cased", tokens=5000)
    with pytest.raises(ConfigError, match="roberta-base has positions for 512 tokens, 513 asked for"):
        check_architecture(MODELS, "roberta-base", tokens=513)
    with pytest.raises(ConfigError, match=r"gpt2 has 12 heads, head 12 \(counted from 0\) asked for"):
        check_architecture(MODELS, "gpt2", tokens=8, heads=13)


def test_an_unknown_architecture_is_answered_with_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match=r"models\.yaml: no architecture 'roberta-bse'; did you mean roberta-base\?"):
        read_architecture(MODELS, "roberta-bse")
    (tmp_path / "models.yaml").write_text("- roberta-base\n")
    with pytest.raises(ConfigError, match="must be a table of architectures by name"):
        read_architecture(tmp_path / "models.yaml", "roberta-base")
