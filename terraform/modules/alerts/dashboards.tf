# tools/dev/dashboards.py writes the files.
locals {
  dashboards = [for name in sort(fileset("${path.module}/dashboards", "*.json")) : {
    apiVersion = "v1"
    kind       = "ConfigMap"
    metadata = {
      name      = "corral-dashboard-${trimsuffix(name, ".json")}"
      namespace = var.namespace
      labels    = merge({ "app.kubernetes.io/part-of" = "corral", grafana_dashboard = "1" }, var.labels)
    }
    data = { "corral-${name}" = file("${path.module}/dashboards/${name}") }
  }]
}
