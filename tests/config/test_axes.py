"""Every number is an option of its axis; everything else is refused in the axis's words."""

import pytest

from dmad_sweep.config.axes import AXES, node_of, normalise
from dmad_sweep.errors import ConfigError

FILES = {
    "batch": ["1", "2", "16", "huge"],
    "accumulation": ["1"],
    "resolution": ["512", "720p"],
    "precision": ["bf16", "fp32"],
}


def rewritten(override: str) -> str:
    (text,) = normalise([override], lambda group: FILES.get(group, []))
    return text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("batch=3", "batch='3'"),
        ("batch=1,2,4", "batch='1','2','4'"),
        ("batch='1','2'", "batch='1','2'"),
        ("batch=range(1,5)", "batch='1','2','3','4'"),
        ("batch=choice(1,3)", "batch='1','3'"),
        ("batch=glob(*)", "batch='1','16','2','huge'"),
        ("batch=glob(['1*','h*'],exclude='16')", "batch='1','huge'"),
        ("batch=huge,7", "batch='huge','7'"),
        ("batch=elsewhere", "batch='elsewhere'"),
        ("resolution=720p", "resolution='720p'"),
        ("accumulation=8", "accumulation='8'"),
        ("resolution=640,512x768", "resolution='640','512x768'"),
        ("+batch=3", "+batch='3'"),
        ("batch@other=3", "batch@other='3'"),
        ("~batch=3", "~batch='3'"),
        ("precision=32", "precision='32'"),
        ("precision=fp32,null,true", "precision='fp32','null','true'"),
    ],
)
def test_numbers_are_quoted(given: str, expected: str) -> None:
    assert rewritten(given) == expected


@pytest.mark.parametrize(
    "override",
    ["batch.size=3", "model=tiny", "~batch", "++schedule.measured_cycles=2", "seed=1,2", "foo=[1",
     "precision=fp32,bf16", "precision=[fp32,bf16]", "precision={tf32:true}", "~precision", "precision=[1"],
)  # fmt: skip
def test_other_keys_are_left_alone(override: str) -> None:
    assert rewritten(override) == override


@pytest.mark.parametrize(
    "value",
    ["0", "-1", "1.5", "01", "null", "true", "", "[1,2]", "{a:1}", "1,0", "1,,2", "1e3",
     "interval(1,3)", "99999999999", "'3 '", "3x"],
)  # fmt: skip
@pytest.mark.parametrize("group", ["batch", "accumulation"])
def test_what_is_no_positive_integer_is_refused(group: str, value: str) -> None:
    with pytest.raises(ConfigError, match="is not allowed: give a positive integer, for instance"):
        rewritten(f"{group}={value}")


@pytest.mark.parametrize("value", ["0", "0x5", "512x", "512X768", "512x768x3", "-8", "5.5"])
def test_what_is_no_size_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="give a size in pixels, 640, or height x width, 512x768"):
        rewritten(f"resolution={value}")


@pytest.mark.parametrize(
    ("value", "advice"), [("100", "96 or 104"), ("512x100", "96 or 104"), ("4", "at least 8")]
)
def test_a_size_that_the_vae_cannot_take_is_refused_with_the_nearest(value: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice):
        rewritten(f"resolution={value}")


def test_nodes() -> None:
    assert node_of("batch", "3") == {"size": 3}
    assert node_of("accumulation", "4") == {"steps": 4}
    assert node_of("resolution", "640") == {"height": 640, "width": 640}
    assert node_of("resolution", "512x768") == {"height": 512, "width": 768}
    assert set(AXES) == {"batch", "accumulation", "resolution"}
