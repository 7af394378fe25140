variable "answer_seconds" {
  description = "Seconds that an answer may take when its model is loaded."
  type        = number
  default     = 3600
  nullable    = false
}

variable "api_base" {
  description = "The endpoint of llama-swap or its door, with /v1."
  type        = string
  nullable    = false
}

variable "api_key_env" {
  description = "The variable of LiteLLM's environment that holds the key with which it asks the door. Null: the endpoint takes requests without a key."
  type        = string
  default     = null
}

variable "catalog" {
  description = "The folder that holds models/*.yaml and lock.json, absolute or relative to this stack, e.g. \"../../catalog-demo\"."
  type        = string
  nullable    = false
}

variable "load_seconds" {
  description = "Seconds that a model may take to load."
  type        = number
  default     = 300
  nullable    = false
}
