"""torchvision's ShuffleNet V2: channels that are split, shuffled and concatenated."""

from ..file import File, image

FILE = File(
    name="shufflenet",
    source="torchvision.models.shufflenetv2",
    edits={
        "package": {"@register_model()\n": ""},
        "method": {
            "x.size()": "x.shape",
            "x.chunk(2, dim=1)": "torch.chunk(x, 2, dim=1)",
            "x.mean([2, 3])": "torch.mean(x, [2, 3])",
        },
    },
    make=lambda models: models.ShuffleNetV2([1, 1, 1], [24, 48, 96, 192, 64], num_classes=5),
    inputs=(image(32),),
)
