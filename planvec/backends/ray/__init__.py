"""Runs workers in the actors of a Ray cluster. `worker` shows the states of an actor.

over_ray -> Sharded -> RayWorker  --request-->  StepActor (on a node of the cluster)
                           ^                        |
            RayGroup  <----+------- answer ---------+
"""
