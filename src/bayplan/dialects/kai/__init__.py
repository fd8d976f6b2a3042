"""The API family of pod groups with sub-group trees, segments of replica types, and fair queues."""
