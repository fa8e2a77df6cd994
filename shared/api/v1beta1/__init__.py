"""Kinds as version v1beta1 shows them, where it differs from v1beta2. They only feed the generated CRDs: nothing decides by them."""
