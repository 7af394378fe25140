variable "allowed_namespaces" {
  description = "The namespaces whose pods may connect to llama-swap, e.g. [\"litellm\"]. No other may."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "annotations" {
  description = "Annotations of all objects and pods, e.g. { \"cluster-autoscaler.kubernetes.io/safe-to-evict\" = \"false\" }."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([
      for key in keys(var.annotations) : can(regex("^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$", key))
    ])
    error_message = "The annotations have the keys ${jsonencode(keys(var.annotations))}; each must be a name, perhaps below a domain, e.g. example.org/owner."
  }

  validation {
    condition = length([for key in keys(var.annotations) : key if can(regex("^(${local.reserved_annotations})/", key))]) == 0
    error_message = join(" ", [
      "corral or Kubernetes itself writes the annotations",
      "${join(", ", [for key in keys(var.annotations) : key if can(regex("^(${local.reserved_annotations})/", key))])}. Take them out.",
    ])
  }
}

variable "card_exporter" {
  description = "The exporter that reports who holds the card; {} is enough. `alerts`: see module alerts; the rest: module card-exporter. Null: none."
  type = object({
    namespace            = optional(string, "corral-exporter")
    scraped_from         = optional(list(string), [])
    driver_pid_namespace = optional(number)
    records              = optional(string, "/var/lib/corral/records")
    alertmanager         = optional(object({ service = string, namespace = string, port = optional(number, 9093) }))
    alerts = optional(object({
      labels   = optional(map(string), {})
      runbooks = optional(string, "docs/runbooks")
    }), {})
  })
  default = null
}

variable "catalog" {
  description = "The folder that holds models/*.yaml, cards/*.yaml, images.yaml and lock.json, absolute or relative to this stack."
  type        = string
  default     = "../../catalog"
  nullable    = false
}

variable "concurrency" {
  description = "The requests that each model accepts at a time, waiting ones too; one more gets 429. A client's own limit is in clients.yaml."
  type        = number
  default     = 10
  nullable    = false
}

variable "cpu" {
  description = "Cores of llama-swap and its engines: request and limit. One is busy while a model answers, all while an image is encoded."
  type        = object({ request = optional(string, "500m"), limit = optional(string, "4") })
  default     = {}
  nullable    = false
}

variable "create_namespace" {
  description = "Whether the stack creates and removes its namespace; by default it does, except with `store.claim`. False: it exists already."
  type        = bool
  default     = null

  validation {
    condition     = !(coalesce(var.create_namespace, false) && var.store.claim != null)
    error_message = "create_namespace is true, and the claim ${coalesce(var.store.claim, "null")} is in a namespace that exists. Take create_namespace out."
  }
}

variable "expose" {
  description = "A name outside of the cluster, by an Ingress or a Gateway, and the namespace of the pods that forward for it. Null: none."
  type = object({
    hostname       = string
    from_namespace = string
    ingress_class  = optional(string)
    tls_secret     = optional(string)
    annotations    = optional(map(string))
    gateway        = optional(object({ name = string, namespace = string }))
    tls            = optional(bool, true)
  })
  default = null
}

variable "gateway" {
  description = "LiteLLM in front of llama-swap, `gateway` in images.yaml: who may connect, its PostgreSQL, see module gateway. {} is enough. Null: none."
  type = object({
    allowed_namespaces = optional(list(string), [])
    answer_seconds     = optional(number, 3600)
    database = optional(object({
      secret = string
      key    = optional(string, "url")
      cidrs  = list(string)
      port   = optional(number, 5432)
    }))
  })
  default = null
}

variable "gpu_resource" {
  description = "The resource by which a pod asks for the card, e.g. \"nvidia.com/gpu.shared\"; its name is a taint that pods tolerate, too."
  type        = string
  default     = "nvidia.com/gpu"
  nullable    = false

  validation {
    condition = can(regex("^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$", var.gpu_resource))
    error_message = join(" ", [
      "The GPU's resource is \"${var.gpu_resource}\"; it must be one that the node offers, with its vendor, e.g. nvidia.com/gpu.",
      "To list them: kubectl get node NODE -o jsonpath='{.status.allocatable}'",
    ])
  }

  validation {
    condition = !can(regex("^requests\\.|(^|\\.)kubernetes\\.io/", var.gpu_resource))
    error_message = join(" ", [
      "The GPU's resource is \"${var.gpu_resource}\"; requests. and kubernetes.io are Kubernetes' own.",
      "Use the device plugin's name, e.g. nvidia.com/gpu.",
    ])
  }
}

variable "hf_token_secret" {
  description = "The Secret whose key `token` gives the download access to gated repos; another name takes effect with the next Job. Null: no token."
  type        = string
  default     = null
}

variable "hub" {
  description = "The hub of the download, e.g. \"https://hub.home.arpa\". If private: `hub_cidrs` too. Null: huggingface.co."
  type        = string
  default     = null
}

variable "hub_cidrs" {
  description = "The networks of a hub in a private network, e.g. [\"192.168.1.20/32\"]: the download may reach its port there, and no other private address."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "image" {
  description = "The server's image with llama-swap and llama-server, by digest, not with llama-server in images.yaml. Null: the lock's image."
  type        = string
  default     = null

  validation {
    condition = var.image == null ? true : can(regex("^[^\\s@]+@sha256:[0-9a-f]{64}$", var.image))
    error_message = join(" ", [
      "The server's image is ${jsonencode(var.image)}; it must name a digest (…@sha256: and 64 hexadecimal digits),",
      "because a tag can be moved. Leave it out to run what lock.json names.",
    ])
  }
}

variable "image_hosts" {
  description = "The hosts whose images a request may name, each with its addresses, e.g. { \"images.home.arpa\" = [\"192.168.1.20/32\"] }."
  type        = map(list(string))
  default     = {}
  nullable    = false
}

variable "image_pull_secrets" {
  description = "The Secrets by which the images of every pod are pulled, e.g. [\"registry\"], in `namespace`, and in the card exporter's."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition = length(distinct(var.image_pull_secrets)) == length(var.image_pull_secrets) && alltrue([
      for name in var.image_pull_secrets : can(regex("^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", name))
    ])
    error_message = join(" ", [
      "The pull secrets are ${jsonencode(var.image_pull_secrets)}; each must be the name of another Secret, of a-z, 0-9, . and -, never its content.",
      "To make one: kubectl -n ${var.namespace} create secret docker-registry NAME --docker-server=HOST",
    ])
  }
}

variable "kube_context" {
  description = "The context in the kubeconfig. Null: its current one."
  type        = string
  default     = null

  validation {
    condition     = var.kube_context == null ? true : trimspace(var.kube_context) != ""
    error_message = "The context is ${jsonencode(var.kube_context)}; it must be one of: kubectl config get-contexts. Leave it out for the current one."
  }
}

variable "kubeconfig" {
  description = "The kubeconfig file of the cluster. Null: with corral KUBECONFIG, else ~/.kube/config; with Terraform alone KUBE_CONFIG_PATHS."
  type        = string
  default     = null

  validation {
    condition = var.kubeconfig == null ? true : can(regex("^[^:]+$", var.kubeconfig))
    error_message = join(" ", [
      "The kubeconfig is \"${var.kubeconfig == null ? "null" : var.kubeconfig}\"; it must be one file. For several leave the variable out,",
      "and name them with a colon between them: export KUBECONFIG=FIRST:SECOND",
    ])
  }
}

variable "labels" {
  description = "Labels of all objects and pods, e.g. { team = \"home\" }. Those that corral sets itself cannot be among them."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([
      for key, value in var.labels : can(regex("^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$", key))
      && can(regex("^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$", value))
    ])
    error_message = join(" ", [
      "The labels are ${jsonencode(var.labels)}; each key must be a name, perhaps below a domain, e.g. example.org/team,",
      "and each value at most 63 of A-Z, a-z, 0-9, . _ and -, with a letter or a digit at both ends.",
    ])
  }

  # Selectors, policies and controllers depend on them.
  validation {
    condition = length([for key in keys(var.labels) : key if can(regex("^(${local.reserved_labels})$", key))]) == 0
    error_message = join(" ", [
      "corral or Kubernetes itself sets the labels",
      "${join(", ", [for key in keys(var.labels) : key if can(regex("^(${local.reserved_labels})$", key))])}, by which it finds its objects.",
      "Take them out, or use a domain of your own, e.g. example.org/component.",
    ])
  }
}

variable "namespace" {
  description = "The namespace of all objects. It is created and removed with the stack, see `create_namespace`."
  type        = string
  default     = "llama-cpp"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", var.namespace)) && !startswith(var.namespace, "kube-") && var.namespace != "default"
    error_message = "The namespace is \"${var.namespace}\"; it must be one of its own, of a-z, 0-9 and -, e.g. llama-cpp."
  }
}

variable "priority_class" {
  description = "The PriorityClass of llama-swap's pod, which decides whom the node's kubelet evicts first. Null: the cluster's default."
  type        = string
  default     = null
}

variable "runtime_class" {
  description = "The RuntimeClass that gives a pod its card. Null: the node's default runtime does."
  type        = string
  default     = "nvidia"
}

variable "enforce_pod_security" {
  description = "Whether the namespace refuses pods that are not *restricted*; by default one that the stack creates does, and one that exists not."
  type        = bool
  default     = null
}

variable "store" {
  description = "The models' place, exactly one of: `nfs` (an export), `local` (a folder on the GPU node), `claim` (its name), `storage_class` (and `size`)."
  type = object({
    nfs = optional(object({
      server        = string
      path          = string
      mount_options = optional(list(string))
    }))
    local         = optional(object({ node = string, path = string }))
    claim         = optional(string)
    storage_class = optional(string)
    size          = optional(string)
    access_mode   = optional(string)
  })
  nullable = false
}

variable "timeouts" {
  description = "What may take how long: a load, a drain of answers before the pod ends, the download, and a new pod's start. {}: the usual times."
  type = object({
    load_seconds     = optional(number, 300)
    drain_seconds    = optional(number, 60)
    download_minutes = optional(number, 180)
    rollout_minutes  = optional(number, 15)
  })
  default  = {}
  nullable = false
}

variable "tolerations" {
  description = "Further taints of the card's node that all pods tolerate; `seconds` ends a pod so long after NoExecute. The GPU's own are tolerated anyway."
  type = list(object({
    key      = optional(string)
    operator = optional(string, "Equal")
    value    = optional(string)
    effect   = optional(string)
    seconds  = optional(number)
  }))
  default  = []
  nullable = false

  validation {
    condition = alltrue([
      for one in var.tolerations : one == null ? false : one.operator == "Exists" ? one.value == null : one.operator == "Equal" && one.key != null
    ])
    error_message = join(" ", [
      "The tolerations are ${jsonencode(var.tolerations)}; the operator of each must be Exists, without a value, or Equal, with a key,",
      "e.g. { key = \"dedicated\", value = \"gpu\", effect = \"NoSchedule\" }.",
    ])
  }

  validation {
    condition = alltrue([
      for one in var.tolerations : (one.effect == null ? true : contains(["NoSchedule", "PreferNoSchedule", "NoExecute"], one.effect))
      && (one.seconds == null ? true : one.effect == "NoExecute" && one.seconds >= 0 && floor(one.seconds) == one.seconds) if one != null
    ])
    error_message = join(" ", [
      "The tolerations are ${jsonencode(var.tolerations)}; an effect must be NoSchedule, PreferNoSchedule or NoExecute,",
      "and only NoExecute has seconds, a whole number. Without an effect all are tolerated.",
    ])
  }

  validation {
    condition = alltrue([
      for one in var.tolerations : can(regex("^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$", one.key))
      if one != null && try(one.key, null) != null
    ])
    error_message = "The tolerations are ${jsonencode(var.tolerations)}; a key must be that of a taint, e.g. dedicated or example.org/gpu."
  }
}
