"""The seating chart for people: what Terraform summed, drawn, told and played through.  Nothing here adds up MiB."""
