"""Steps of milabench on one GPU at batches from 1 up, with the memory that the driver reported: rows of
mila-iqia/milabench `config/scaling` (MIT), run with PyTorch 2.5 and 2.6, by the recipes of `milabench.py`.

No model is trained on this file. But AMD's terms were learned from the same runs on the MI325X
(`milabench.py`), and the assumed pace of the host and the memory beside tensors come from these runs too.
`habitat-lab evaluate hosts` predicts them.
"""

import functools

import torch

from milabench import NETWORKS, PRECISIONS, SIDES, layout, masked_words, pictures

# Reports other memory than that of its steps: one FP32 pass over images of 244 × 244 that keeps its gradients
# is within 0.1 GB of it at every batch on the H100 and the L40S (8 to 85 GB), with 1.5 and 1.2 GB for the
# process. Steps need half of it.
BEFORE_STEPS = ("resnet50-noio",)
# Here BERT and Lightning's ResNet-152 use plain Adam.
BUILDS = {
    "bert-base": functools.partial(masked_words, optimizer=torch.optim.Adam),
    "resnet152": functools.partial(pictures, "resnet152", optimizer=torch.optim.Adam),
}


def case(row):
    batch, size = int(row["batch"]), SIDES.get(row["bench"], int(row["seq_or_image"]))
    network, family, build = NETWORKS[row["model"]]
    build = BUILDS.get(network, build)
    kind, precision = PRECISIONS[row["precision"]]
    memory = {} if row["bench"] in BEFORE_STEPS else {"memory_mib": row["memory_mib"]}
    return {
        "case": "-".join([row["bench"], network, "b%d" % batch, str(size), row["precision"]]),
        "build": lambda batch_size=batch: build(batch_size, size, kind),
        "network": network,
        "family": family,
        "mode": "training",
        "gpu": row["gpu"],
        "precision": precision,
        "layout": layout(row),
        "step_ms": row["step_ms"],
        **memory,
        "source": row["bench"],
        "software": row["software"],
        "compiled": "",
        "quality": row["quality"],
    }


def cases(rows):
    return [case(row) for row in rows]
