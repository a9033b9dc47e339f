"""What `helm test` runs: the server answers over REST, and plays one step of a game over gRPC."""

import os
import ssl
import urllib.request

import rock_env

url = f"{os.environ['ROCK_HTTP']}/healthz"
with urllib.request.urlopen(url, context=ssl.create_default_context(cafile=os.environ["ROCK_CA"])) as reply:
    print(f"{url}: {reply.read().decode()}")
if os.environ.get("ROCK_TOKEN"):
    with rock_env.connect(os.environ["ROCK_ADDRESS"]) as connection:
        env = connection.make("frozen_lake", slippery=False)
        env.reset(seed=7)
        print(env.step("down")[0])
        env.close()
else:
    print("No game was played: the Secret with tokens.json has no key `token`.")
