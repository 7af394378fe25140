variable "cards" {
  description = "The text of each file in the catalog's cards/, by card name: text and not values, because YAML lets a key stand twice and decoding keeps one of them."
  type        = map(string)
  nullable    = false
}

variable "lock" {
  description = "The decoded `lock.json` of the same catalog, or null where there is none."
  type        = any
  default     = null
}

variable "measured" {
  description = "The decoded `measured.json` of the same catalog (what loaded models really took), or null where nothing was measured yet."
  type        = any
  default     = null
}

variable "models" {
  description = "The intents of the catalog, decoded and untouched, by model id; the lock's digests are taken over exactly these values."
  type        = any
  nullable    = false
}
