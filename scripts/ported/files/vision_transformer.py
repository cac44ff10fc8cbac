"""torchvision's vision transformer: attention as a layer, positions as a Parameter."""

from ..file import File, image
from . import misc

FILE = File(
    name="vision_transformer",
    source="torchvision.models.vision_transformer",
    needs=(misc.FILE,),
    edits={
        "import": {"from ..ops.misc import": "from ..ops.misc_ported import"},
        "package": {"@register_model()\n": ""},
        "graph": {"self.class_token.expand(n, -1, -1)": "torch.expand(self.class_token, (n, -1, -1))"},
        "initial value": {
            "torch.empty(1, seq_length, hidden_dim).normal_(std=0.02)": (
                "torch.normal(0.0, 0.02, (1, seq_length, hidden_dim))"
            ),
        },
    },
    make=lambda models: models.VisionTransformer(
        image_size=16, patch_size=4, num_layers=1, num_heads=2, hidden_dim=16, mlp_dim=32, dropout=0.1, num_classes=5
    ),
    inputs=(image(16),),
)
