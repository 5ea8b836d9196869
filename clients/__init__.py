"""The SDK, asyncio first: producers and consumers for this broker and for Apache RocketMQ."""
