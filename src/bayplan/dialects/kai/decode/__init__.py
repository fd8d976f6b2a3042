"""Watch events and admission reviews of KAI objects.

May import: model, dialects.kube, dialects.jobs and the other folders of dialects.kai.
"""
