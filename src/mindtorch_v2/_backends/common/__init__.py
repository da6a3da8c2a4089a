"""What backends share: copies between devices."""
