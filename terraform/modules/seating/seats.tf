# A seat is what one model needs of its card, in whole MiB: the largest of up to three figures.

locals {
  _mib   = 1048576
  _bases = ["predicted", "declared", "measured"] # of equal figures the first is the basis

  _bytes = { for id, model in var.models : id => {
    predicted = coalesce(model.predicted.gpu_bytes, 0)
    declared  = try(model.intent.vram.declared_mib * local._mib, 0)
    measured  = try(coalesce(model.measured.gpu_bytes), 0)
  } }
  _largest = { for id, bytes in local._bytes : id => max(values(bytes)...) }
  _seats   = { for id, bytes in local._largest : id => ceil(bytes / local._mib) }
  _basis   = { for id, bytes in local._bytes : id => [for basis in local._bases : basis if bytes[basis] == local._largest[id]][0] }

  _without_figure          = [for id, bytes in local._largest : id if bytes <= 0]
  every_model_has_a_figure = length(local._without_figure) == 0
}
