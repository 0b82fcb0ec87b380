"""A real network on one machine: jobs exchange gradients over the links of a cluster, emulated by the kernel."""
