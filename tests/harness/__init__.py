"""What tests share: free ports, started daemons, peers, a disk that fails on demand."""
