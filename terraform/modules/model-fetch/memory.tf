# MiB.  Page cache is charged to the reading cgroup: a warming container with a lower limit than the models would drop the beginning
# while it reads the end.  Its limit is therefore the size of all files plus Python's needs.  The request is minimal, because the kernel
# frees page cache on demand.

locals {
  _mib = 1024 * 1024

  fetch_mib = 256
  warm_mib  = 128 + ceil(local._bytes / local._mib)
}
