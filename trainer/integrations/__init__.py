"""The service's rewards inside other trainers: one module each, which does not import that trainer."""
