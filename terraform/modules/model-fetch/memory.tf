# MiB.  Page cache is charged to the cgroup that reads: a warming container that may take less than the models would drop the beginning
# while it reads the end.  Its limit is therefore the size of all files and what Python needs; next to nothing of it is requested, because
# page cache is given back when anything else needs the memory.

locals {
  _mib = 1024 * 1024

  fetch_mib = 256
  warm_mib  = 128 + ceil(local._bytes / local._mib)
}
