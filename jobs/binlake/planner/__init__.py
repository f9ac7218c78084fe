"""From a batch's staged mutations and statements to the steps that each table takes in the lake. Pure."""
