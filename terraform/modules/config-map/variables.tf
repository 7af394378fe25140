variable "annotations" {
  description = "The annotations of the ConfigMap. Null: none."
  type        = map(string)
  default     = null
}

variable "binary_data" {
  description = "The files that are not text: file name to base64."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "data" {
  description = "The text files: file name to content. Known when Terraform plans."
  type        = map(string)
  nullable    = false
}

variable "labels" {
  description = "The labels of the ConfigMap."
  type        = map(string)
  nullable    = false
}

variable "name" {
  description = "What its name begins with, e.g. \"llama-swap-config\"; the hash of its content follows."
  type        = string
  nullable    = false
}

variable "namespace" {
  description = "The namespace of the pods that mount it."
  type        = string
  nullable    = false
}
