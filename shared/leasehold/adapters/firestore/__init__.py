"""The documents port on Firestore. Google's libraries are imported when a store is opened."""

from leasehold.adapters.firestore.documents import FirestoreDocuments

__all__ = ["FirestoreDocuments"]
