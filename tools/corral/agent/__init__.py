"""What also runs inside the cluster: one flat package, standard library only, relative imports only.

Terraform mounts these files from a ConfigMap and runs ``python3 -m agent`` on a stock Python image.
"""
