"""Losses: of classes, of numbers, of distributions, of distances, of sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .example import Example, model

BATCH, CLASSES = 6, 5


def scores() -> Tensor:
    return torch.randn(BATCH, CLASSES)


def classes() -> Tensor:
    return torch.randint(CLASSES, (BATCH,))


def signs(*shape: int) -> Tensor:
    return torch.randint(2, shape) * 2.0 - 1


def probabilities() -> Tensor:
    return torch.rand(BATCH, CLASSES) * 0.9 + 0.05


def of_classes(loss: nn.Module) -> Example:
    return Example(loss, (scores(), classes()))


def of_numbers(loss: nn.Module) -> Example:
    return Example(loss, (scores(), scores()))


def of_triples(loss: nn.Module) -> Example:
    return Example(loss, (scores(), scores(), scores()))


def of_sequences(loss: nn.Module, target_lengths: list[int]) -> Example:
    """Log-probabilities ``[time, batch, classes]``, targets ``[batch, 4]``, and both lengths as tensors."""
    log_probabilities = torch.randn(9, 3, CLASSES).log_softmax(-1)
    targets = torch.randint(1, CLASSES, (3, 4))
    return Example(loss, (log_probabilities, targets, torch.tensor([9, 7, 3]), torch.tensor(target_lengths)))


@model
def cross_entropy_loss() -> Example:
    """Standard cross-entropy"""
    return of_classes(nn.CrossEntropyLoss())


@model
def cross_entropy_loss_weighted() -> Example:
    """With class weights"""
    return of_classes(nn.CrossEntropyLoss(weight=torch.rand(CLASSES)))


@model
def cross_entropy_loss_ignore_index() -> Example:
    """Ignore padding"""
    return Example(nn.CrossEntropyLoss(ignore_index=0), (scores(), torch.tensor([0, 1, 2, 0, 4, 3])))


@model
def cross_entropy_loss_label_smoothing() -> Example:
    """Regularization"""
    return of_classes(nn.CrossEntropyLoss(label_smoothing=0.1))


@model
def cross_entropy_loss_sum() -> Example:
    """Different reductions"""
    return of_classes(nn.CrossEntropyLoss(reduction="sum"))


@model
def cross_entropy_loss_none() -> Example:
    """Different reductions"""
    return of_classes(nn.CrossEntropyLoss(reduction="none"))


@model
def nll_loss() -> Example:
    """Negative log likelihood"""
    return Example(nn.NLLLoss(), (scores().log_softmax(-1), classes()))


@model
def bce_loss() -> Example:
    """Binary"""
    return Example(nn.BCELoss(), (probabilities(), probabilities()))


@model
def bce_with_logits_loss() -> Example:
    """Binary"""
    return Example(nn.BCEWithLogitsLoss(), (scores(), probabilities()))


@model
def bce_with_logits_pos_weight() -> Example:
    """Binary"""
    return Example(nn.BCEWithLogitsLoss(pos_weight=torch.rand(CLASSES) + 0.5), (scores(), probabilities()))


@model
def mse_loss() -> Example:
    """Mean squared error"""
    return of_numbers(nn.MSELoss())


@model
def mse_loss_sum() -> Example:
    """Mean squared error"""
    return of_numbers(nn.MSELoss(reduction="sum"))


@model
def l1_loss() -> Example:
    """Mean absolute error"""
    return of_numbers(nn.L1Loss())


@model
def smooth_l1_loss() -> Example:
    """Huber variant"""
    return of_numbers(nn.SmoothL1Loss())


@model
def smooth_l1_loss_beta() -> Example:
    """Huber variant"""
    return of_numbers(nn.SmoothL1Loss(beta=0.5))


@model
def huber_loss() -> Example:
    """Robust regression"""
    return of_numbers(nn.HuberLoss())


@model
def huber_loss_delta() -> Example:
    """Robust regression"""
    return of_numbers(nn.HuberLoss(delta=0.5))


@model
def kl_div_loss() -> Example:
    """KL divergence"""
    return Example(nn.KLDivLoss(reduction="batchmean"), (scores().log_softmax(-1), scores().softmax(-1)))


@model
def kl_div_loss_log_target() -> Example:
    """KL divergence"""
    loss = nn.KLDivLoss(reduction="batchmean", log_target=True)
    return Example(loss, (scores().log_softmax(-1), scores().log_softmax(-1)))


@model
def hinge_embedding_loss() -> Example:
    """Hinge loss"""
    return Example(nn.HingeEmbeddingLoss(), (scores(), signs(BATCH, CLASSES)))


@model
def margin_ranking_loss() -> Example:
    """Ranking"""
    return Example(nn.MarginRankingLoss(margin=0.1), (torch.randn(BATCH), torch.randn(BATCH), signs(BATCH)))


@model
def triplet_margin_loss() -> Example:
    """Triplet"""
    return of_triples(nn.TripletMarginLoss())


@model
def triplet_margin_loss_custom() -> Example:
    """Triplet"""

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return 1 - F.cosine_similarity(x, y)

    return of_triples(nn.TripletMarginWithDistanceLoss(distance_function=distance, margin=0.5, swap=True))


@model
def cosine_embedding_loss() -> Example:
    """Cosine similarity"""
    return Example(nn.CosineEmbeddingLoss(margin=0.1), (scores(), scores(), signs(BATCH)))


@model
def ctc_loss() -> Example:
    """CTC"""
    return of_sequences(nn.CTCLoss(), [4, 2, 1])


@model
def ctc_loss_zero_infinity() -> Example:
    """CTC"""
    return of_sequences(nn.CTCLoss(zero_infinity=True), [4, 2, 4])


@model
def poisson_nll_loss() -> Example:
    """Count data"""
    return Example(nn.PoissonNLLLoss(full=True), (scores(), torch.randint(5, (BATCH, CLASSES)).float()))


@model
def gaussian_nll_loss() -> Example:
    """Uncertainty"""
    return Example(nn.GaussianNLLLoss(full=True), (scores(), scores(), probabilities()), ruled=True)


@model
def soft_margin_loss() -> Example:
    """Margin"""
    return Example(nn.SoftMarginLoss(), (scores(), signs(BATCH, CLASSES)), held=(1,))


@model
def multi_margin_loss() -> Example:
    """Margin"""
    return of_classes(nn.MultiMarginLoss())


@model
def multilabel_margin_loss() -> Example:
    """Multi-label"""
    targets = torch.tensor([[0, 2, -1, 1, 1], [3, -1, 0, 0, 0], [4, 3, 2, 1, 0]])
    return Example(nn.MultiLabelMarginLoss(), (torch.randn(3, CLASSES), targets))


@model
def multilabel_soft_margin_loss() -> Example:
    """Multi-label"""
    return Example(nn.MultiLabelSoftMarginLoss(), (scores(), torch.randint(2, (BATCH, CLASSES)).float()))
